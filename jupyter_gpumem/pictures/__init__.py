"""Records to what one sees. Pictures know records only: a picture cannot delete a tensor."""
