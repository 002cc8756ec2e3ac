"""Options, inputs and output that several verbs share."""
