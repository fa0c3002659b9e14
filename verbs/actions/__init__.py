"""What the verbs do, apart from their options: imported when a verb is called."""
