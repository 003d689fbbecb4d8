"""TpuGraphs as it is exchanged: folders imported and exported, files scored, the leaderboard's table."""
