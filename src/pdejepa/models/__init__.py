"""Networks on patches of fields: encoder, predictors, latent vector field and decoder, in one and two dimensions."""
