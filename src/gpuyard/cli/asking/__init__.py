"""The verbs that ask about a site from its log: `whatif` and `size`. What they compute lives in `experiments/questions`."""
