"""Plots and videos: learning curves of one or several runs, and recorded episodes.

`curves` reads metrics files and draws, `statistics` has means and bands, `video` writes films.
Read `curves` first.
"""
