"""What is asked: frozen specifications, and the plan that follows from them."""
