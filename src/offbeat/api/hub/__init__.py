"""The Hugging Face hub: uploads a policy with its model card, and downloads policies."""
