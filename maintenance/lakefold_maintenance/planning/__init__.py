"""What maintenance a table needs: its policy, the figures of its fragments, the plan. Pure functions."""
