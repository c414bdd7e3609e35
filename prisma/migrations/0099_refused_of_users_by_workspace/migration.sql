-- The name of an identifier differs between workspaces, so that rows of two workspaces cannot be related.
update refused_of_users set name = sha256(uuid_send(workspace_id) || name);
