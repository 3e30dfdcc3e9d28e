"""From a missing page to bytes: plan, single flight, retry, and the socket that workers and jobs ask by."""
