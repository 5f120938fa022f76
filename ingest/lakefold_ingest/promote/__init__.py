"""Promoting a branch: one proposal that puts on the main branch what was written to another one.

`branch_effect` compares two versions of the branch, and finds where its rows are on the main branch.
`promotion` makes of that which rows go and which come, and which of them others changed meanwhile.
`branch_promote` is the operation that proposes it. Only Lance tables have branches.
"""
