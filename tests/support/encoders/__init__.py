"""Small encoders, embeddings and DICOM files that tests make."""
