"""The evaluation of crop2024 on recorded programs of five networks (section 4, Table 2)."""
