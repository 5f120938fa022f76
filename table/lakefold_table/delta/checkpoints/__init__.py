"""The actions of checkpoints: classic ones, in parts, and V2 with sidecars."""
