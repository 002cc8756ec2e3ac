"""What several verbs share: options, inputs and output."""
