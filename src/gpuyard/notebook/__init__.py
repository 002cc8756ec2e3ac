"""Python as people write it: texts, frames and plain functions go in; frames, figures and small HTML tables come out.

`calls` has the functions of `import gpuyard` that take all of these. The nouns of the model reach the other files through `gpuyard.views`
when somebody looks: frames by polars or pandas, pictures by matplotlib, HTML for notebooks.
"""
