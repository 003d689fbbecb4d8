"""Networks that rank the layout configs of a program (tpugraphs2023, section 4.2 and appendix B)."""
