"""Other systems' ways of sharing frames: their streams as ours, and ours as theirs."""
