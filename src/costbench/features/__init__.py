"""The features that models read: TpuGraphs' node, configuration and kernel features, and their scaling."""
