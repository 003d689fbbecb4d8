"""The papers' claims and how result rows decide them."""
