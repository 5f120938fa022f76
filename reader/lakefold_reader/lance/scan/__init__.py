"""Reads rows of Lance data files, by pylance or directly, and says what pylance's errors mean."""
