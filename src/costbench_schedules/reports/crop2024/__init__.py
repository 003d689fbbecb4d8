"""The section of the page about crop2024: the analytical model on programs of networks."""
