"""What the commands share: options, words, progress, exit codes; none of it knows a store."""
