"""Pictures to run on: the embedded world, corruptions, and readers of other datasets."""
