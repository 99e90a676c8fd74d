def render(record): return repr(record)
def render_dangling(s): return repr(s)
