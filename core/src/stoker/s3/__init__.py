"""The S3 endpoint of a node: its DataSets as read-only buckets. docs/S3.md, docs/design/s3.md."""
