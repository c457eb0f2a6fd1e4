"""Tools owned on the wire: model requests and answers as they pass, with our tools in them and no others."""
