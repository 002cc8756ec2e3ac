"""The rank pass: jobs that wait and jobs that may be stopped in one order; who fits in that order runs. Compiled apart from the entry."""
