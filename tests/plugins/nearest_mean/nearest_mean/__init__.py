"""Classification of images by the nearest class mean."""
