"""Stoker, the native disk and plain obstore side by side, in one run: where every measured claim comes from."""
