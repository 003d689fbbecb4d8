"""Recursive networks over the tree of loops: TreeGRU and context-encoded TreeGRU (autotvm2018, Figure 3)."""
