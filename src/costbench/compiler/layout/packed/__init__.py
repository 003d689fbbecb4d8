"""Layout configs compiled on arrays: a rule is applied once to an instruction in given memory orders."""
