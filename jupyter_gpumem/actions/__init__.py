"""What changes the session: each change is planned, can be shown, is then applied and reported."""
