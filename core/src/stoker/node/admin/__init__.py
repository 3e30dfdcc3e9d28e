"""The admin API: routes with their models, and how they are served. docs/design/admin-api.md says how to add one."""
