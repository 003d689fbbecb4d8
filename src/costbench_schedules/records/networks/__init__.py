"""Programs of networks: schedules drawn at random and by search, measured, with features of their LLVM IR."""
