"""Pictures of frames for people: how good, when, and in which words; no Jupyter in it."""
