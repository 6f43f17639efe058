"""Start."""
from viz.shell import open_page

page = open_page("start")
page.footer()
