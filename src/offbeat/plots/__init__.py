"""Plots and videos: learning curves of one or several runs, and recorded episodes.

`runs` reads run directories, `curves` plots them, `statistics` has means and bands, `video` writes videos.
Read `curves` first.
"""
