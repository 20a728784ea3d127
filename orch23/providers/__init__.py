"""Call models: adapters for vendors, and what every call goes through."""
