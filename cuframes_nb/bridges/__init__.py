"""Other systems' ways of sharing frames, read as streams of ours."""
