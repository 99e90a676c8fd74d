"""Where GPU memory went in this notebook, who holds it, and how to get it back."""
