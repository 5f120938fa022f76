"""The rows of fragments without their values: which are deleted, which id each has, since which version.

Sets of rows are `bitmaps`; `deletions` are their files, `joining` brings those of several writers together.
Row ids and versions are `segments` of numbers (`rowids`, `row_versions`); `moved_rows` and `survivors` carry
them to where rows were written anew, `numbering` gives the next ones.
"""
