"""Copy finished record files to a store in the background, and prove that they arrived."""
