"""The change feed of Lance tables: planned from fragments, then read part by part."""
