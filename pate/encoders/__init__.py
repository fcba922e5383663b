"""Public encoders: a pretrained network in a file turns an image or a text into a row of whole numbers."""
