"""Tables, figure and section of the page about tpugraphs2023, ours beside the paper's."""
