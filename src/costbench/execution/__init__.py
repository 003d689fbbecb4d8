"""How code runs here: processes, work items on several of them, functions compiled to machine code."""
