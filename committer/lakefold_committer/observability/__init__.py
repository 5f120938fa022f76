"""What a committer shows of itself: metrics, health over HTTP, and traces."""
