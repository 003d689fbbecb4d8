"""Search strategies over decision spaces, independent of how decisions are scored."""
