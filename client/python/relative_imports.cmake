# Generated messages import each other by the name of their proto package; in ours they are
# neighbours.
file(READ ${FROM} text)
string(REPLACE "from cpshard.v1 import" "from . import" text "${text}")
file(WRITE ${TO} "${text}")
