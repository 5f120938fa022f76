"""Versions that are committed in another store than the one that holds their files (decision 0028).

`external` is a bucket whose versions are committed in a manifest store: `dynamodb` is that store, `base` what
each such store must be able to do, and `staged_manifests` finalizes what another writer began. The names of
the versions are those of the format that knows such stores.
"""
