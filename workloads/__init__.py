"""What is run: fio jobs, the guest agent, and parsers of what comes back."""
